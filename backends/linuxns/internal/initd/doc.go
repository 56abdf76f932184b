// Package initd is PID 1 of a view: it finishes the hardening from inside,
// reaps, and starts commands for the clients that the holder hands over.
//
// It has no power that the view's root has not, and the view's root can trace
// it. So it judges nothing: credentials come from the holder, an exit status is
// passed on as it is, and when the holder's socket ends the view ends.
package initd
