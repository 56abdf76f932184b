//go:build !linux

package execlog

import "os"

func holders(*os.File) string { return "" }

func datasync(f *os.File) error { return f.Sync() }
