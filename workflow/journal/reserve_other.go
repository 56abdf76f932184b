//go:build !linux

package journal

// makeRoom and keepRoom need fallocate(2).
func makeRoom(string) {}
func keepRoom(string) {}
