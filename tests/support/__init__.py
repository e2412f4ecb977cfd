"""What the tests share: tree literals, a hermetic environment, the user's git."""
