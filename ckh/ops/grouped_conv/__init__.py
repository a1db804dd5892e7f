"""`grouped_conv`: convolutions forward, backward data and backward weight, as CK Tile's kernels compute them."""
