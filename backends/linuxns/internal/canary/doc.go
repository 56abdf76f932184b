// Package canary runs one probe as PID 1 of a throw-away view and says how it
// ended.
//
// The process it runs in has a pid namespace of its own, so that whatever the
// probe leaves behind ends with it; a user namespace that is a sibling of the
// view's, so that root inside the view can neither trace it nor take its
// descriptors; and no capability in reach of the probe. The answer goes out by
// a descriptor that the probe never sees.
//
// The package neither makes namespaces nor mounts: that is the builder's. It is
// run by [Serve] after them, and its answer is taken by [Ask], outside, as
// untrusted text.
package canary
