/* Fetches a part of the page again every few seconds. Without it the page works as it is; a link loads it anew. */
(function () {
    "use strict";
    var part = document.querySelector("[data-sagas-live]");
    var box = document.getElementById("sagas-live");
    var state = document.getElementById("sagas-live-state");
    if (!part || !box) { return; }
    box.closest("label").hidden = false;
    var every = Number(part.dataset.sagasEvery) * 1000;
    function busy() {
        return document.hidden || !box.checked || part.contains(document.activeElement) || String(document.getSelection());
    }
    function again() { setTimeout(refresh, every); }
    function refresh() {
        if (busy()) { again(); return; }
        fetch(part.dataset.sagasLive, {credentials: "same-origin", headers: {"X-Requested-With": "fetch"}})
            .then(function (answer) {
                if (!answer.ok || answer.redirected) { throw new Error(String(answer.status)); }
                return answer.text();
            })
            .then(function (text) {
                if (!busy()) { part.innerHTML = text; }
                state.hidden = true;
            })
            .catch(function () { state.hidden = false; })
            .then(again);
    }
    again();
}());
