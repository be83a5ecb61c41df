select count(*) from sagas_archive
