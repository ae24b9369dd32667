"""What runs the comparison: Spark, or Sail without Java."""
