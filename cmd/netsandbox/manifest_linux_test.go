package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

// listing is a tree as text, one line a path: what a reader must find unchanged
// when nothing was to change. Directories have no time: looking at one that holds
// nothing of ours may not say that it was touched, but staging beside it does.
func listing(ts *testscript.TestScript, root string) []string {
	out, err := tree(root)
	ts.Check(err)
	return out
}

func tree(root string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		line := fmt.Sprintf(".%s %s %d:%d", strings.TrimPrefix(path, root), fi.Mode(), st.Uid, st.Gid)
		switch {
		case fi.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d %x", fi.ModTime().UnixNano(), sha256.Sum256(b))
		case fi.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + to
		}
		out = append(out, line)
		return nil
	})
	return out, err
}
