"""What every server here shares: the guard, the model store, jobs that can be cancelled, requests and responses."""
