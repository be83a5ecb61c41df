-- Nobody changes these while their rows are given new ids; reading goes on.
lock table sagas_outbox, sagas_message in share row exclusive mode
