select name, step, direction, mean from sagas_pace
