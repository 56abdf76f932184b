//go:build !linux

package linuxns

// Main does nothing: here the program has no other parts.
func Main() {}
