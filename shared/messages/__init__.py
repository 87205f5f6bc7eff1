"""What travels on the bus: bases of every message and the one catalogue of them."""
