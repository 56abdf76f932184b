// Package client runs one command in a view for whoever calls it: it asks the
// environment's holder, starts one where none lives, passes signals, window
// size and terminal, and returns the status that the command had.
//
// It is the hot path of exec and enter, where the start of the program already
// costs more than the sandbox. So it imports no database, no command-line
// library, no logger and no network stack; a test holds it to that.
package client
