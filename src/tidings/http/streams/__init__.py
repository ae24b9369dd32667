"""What waits for news: event streams, lists of changes, pages that a chained feed copies."""
