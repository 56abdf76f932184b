// Package idle gives back the memory of a process that has nothing to do: an
// environment keeps three of them for as long as it exists, and there may be a
// hundred environments.
package idle
