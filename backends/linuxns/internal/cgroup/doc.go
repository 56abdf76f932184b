// Package cgroup keeps an environment's processes in groups of their own:
// netsandbox/ID/holder and netsandbox/ID/view at the top of the hierarchy, so
// that a logout, a service restart or the caller's memory limit does not take
// them, and so that a view can be frozen and killed as a whole.
//
// With cgroup2 that takes one hierarchy. Limits may live in cgroup v1
// controllers beside it. Where there is neither, the callers fall back to the
// pid namespace.
package cgroup
