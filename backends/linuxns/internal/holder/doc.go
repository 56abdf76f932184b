// Package holder is the process on the host's side that keeps one environment
// alive: its namespaces, as descriptors, its twin of the network, and the lock
// on its layers. It builds the view when a command arrives and rebuilds it when
// nothing lives in it, so that a command sees the host as it is now.
//
// One lock covers build, rebuild, edits of the layers and canaries: two overlays
// over one upper are not refused by the kernel, they corrupt it.
//
// When the holder dies, PID 1 reads the end of its socket and the view ends; the
// network namespace goes with the last descriptor. The next holder therefore
// begins by recording that the twin was lost.
package holder
