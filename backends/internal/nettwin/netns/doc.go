// Package netns runs code in another network namespace.
//
// A namespace belongs to a thread, and a Go program cannot say which thread
// creates the next one. So a thread that changed its namespace is never handed
// back: it is locked and ends with its goroutine. The package keeps no state
// and knows nothing of twins.
package netns
