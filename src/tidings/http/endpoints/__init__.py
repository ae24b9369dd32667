"""What is answered at once: a module for the routes of each part of the feed."""
