// Package wire is how the processes of one environment talk: length-prefixed
// frames over a Unix stream socket, with file descriptors beside them.
//
// Whoever is inside a view can trace its PID 1 and forge whatever that process
// says, so a frame is untrusted input: sizes are capped, unknown fields are
// ignored, and no verdict is taken from it beyond an exit status. The package
// is on the hot path of exec and imports neither net nor anything of the
// workflow.
package wire
