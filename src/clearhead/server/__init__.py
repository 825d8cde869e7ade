"""What every server here shares: the guard at the door, the model store, jobs in threads that can be cancelled."""
