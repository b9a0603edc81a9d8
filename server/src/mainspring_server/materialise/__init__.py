"""Making the next instances of recurring tasks, and writing down what became of the last ones."""
