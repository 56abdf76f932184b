// Package mounts wraps the file-descriptor mount API for a builder: trees are
// made detached, filled, and attached to a descriptor.
//
// Paths in a view can be turned into symlinks by whoever lives in it, and a
// builder is real root on the host; so a place in the view is always opened
// beneath its root without following one ([Place]) and never spelled out.
package mounts
