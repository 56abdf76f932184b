package change

import (
	"fmt"
	"slices"
	"strings"
)

// Script renders changes as commands in an order in which they can be typed:
// what is deleted goes first, children before their directory, so that a
// directory is empty when it is removed or replaced; the rest follows by path,
// so that a directory is there before what is in it, and the first name of a
// file before the others. Default ACLs come last: what is made below a directory
// that has one inherits it.
func Script(cs []Change) []string {
	sorted := slices.Clone(cs)
	Sort(sorted)
	var last []string
	cmds := []string{}
	for _, c := range slices.Backward(sorted) {
		if c.New == nil {
			cmds = append(cmds, c.Commands()...)
		}
	}
	for _, c := range sorted {
		if c.New == nil {
			continue
		}
		for _, cmd := range c.Commands() {
			if strings.HasPrefix(cmd, "setfacl -d ") {
				last = append(last, cmd)
			} else {
				cmds = append(cmds, cmd)
			}
		}
	}
	return append(cmds, last...)
}

// Commands renders a change as the commands an administrator would type to get
// the same result, in the order that gets it. They are for reading: the content
// of a file is named in a comment, and what stands for it is /dev/stdin.
func (c Change) Commands() []string {
	path := Quote(string(c.Path))
	switch {
	case c.New == nil && c.Old == nil:
		return nil
	case c.New == nil:
		return []string{removal(c.Old, path)}
	case c.Old == nil:
		return creation(c.New, path)
	case c.Old.Type != c.New.Type && c.Old.Type != Directory && c.New.Link != "":
		return creation(c.New, path) // ln -f takes the place of anything but a directory
	case c.Old.Type != c.New.Type:
		return append([]string{removal(c.Old, path)}, creation(c.New, path)...)
	case c.New.Link != "", c.New.Type == Regular && c.Old.SHA256 != c.New.SHA256:
		return creation(c.New, path)
	case c.New.Type == Symlink && c.Old.Target != c.New.Target:
		cmds := []string{fmt.Sprintf("ln -sfn %s %s", Quote(string(c.New.Target)), path)}
		return append(cmds, finish(c.New, path)...)
	}
	return attributes(c, path)
}

func removal(e *Entry, path string) string {
	if e.Type == Directory {
		return "rmdir " + path
	}
	return "rm " + path
}

func creation(e *Entry, path string) []string {
	var cmds []string
	switch {
	case e.Link != "":
		return []string{fmt.Sprintf("ln -f %s %s", Quote(string(e.Link)), path)}
	case e.Type == Directory:
		cmds = append(cmds, fmt.Sprintf("mkdir -m %04o %s", e.Mode, path))
	case e.Type == Fifo:
		cmds = append(cmds, fmt.Sprintf("mkfifo -m %04o %s", e.Mode, path))
	case e.Type == Symlink:
		cmds = append(cmds, fmt.Sprintf("ln -s %s %s", Quote(string(e.Target)), path))
	default:
		cmds = append(cmds, fmt.Sprintf("install -m %04o -o %d -g %d /dev/stdin %s # %s", e.Mode, e.UID, e.GID, path, size(e)))
		if e.Sparse {
			cmds = append(cmds, "fallocate -d "+path)
		}
		return append(cmds, attributeCommands(nil, e, path)...)
	}
	return append(cmds, finish(e, path)...)
}

// finish gives what mkdir, mkfifo and ln made its owner and attributes. chown(2)
// takes the setuid bits of anything but a directory.
func finish(e *Entry, path string) []string {
	var cmds []string
	if owner(e) != "0:0" {
		cmds = append(cmds, fmt.Sprintf("chown %s%s %s", noFollow(e), owner(e), path))
		if e.Type == Fifo && e.Mode&0o6000 != 0 {
			cmds = append(cmds, fmt.Sprintf("chmod %04o %s", e.Mode, path))
		}
	}
	return append(cmds, attributeCommands(nil, e, path)...)
}

// attributes renders a change of owner, mode or extended attributes. Owner
// first: chown(2) clears the setuid bits that chmod then sets, and the
// capabilities that setcap then sets.
func attributes(c Change, path string) []string {
	var cmds []string
	old := *c.Old
	chowned := owner(c.Old) != owner(c.New)
	if chowned {
		cmds = append(cmds, fmt.Sprintf("chown %s%s %s", noFollow(c.New), owner(c.New), path))
		if c.Old.Type != Directory {
			old.Xattrs = without(c.Old.Xattrs, capability)
		}
	}
	drops, chmod := dropACLs(&old, c.New, path)
	cmds = append(cmds, drops...)
	if chmod || c.Old.Mode != c.New.Mode || chowned && c.New.Mode&0o6000 != 0 {
		cmds = append(cmds, fmt.Sprintf("chmod %04o %s", c.New.Mode, path))
	}
	return append(cmds, attributeCommands(&old, c.New, path)...)
}
