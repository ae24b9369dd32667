"""The engines that run the comparison: Spark, or Sail, which needs no Java."""
