"""`miopen_conv`: MIOpen's fastest convolution solver for a problem, learned from AMD's find databases."""
