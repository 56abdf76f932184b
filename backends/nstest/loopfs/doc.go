// Package loopfs makes small filesystems of the usual kinds for tests: an image
// in a file, on a loop device, mounted in the mount namespace of the test.
//
//	nstest.NewMount(t, nstest.Overlay)
//	dir := loopfs.Make(t, loopfs.XFS, 0, loopfs.Options{Data: "nouuid"})
//
// Loop devices belong to the machine, not to a namespace. So each clears itself
// with its last user, and a test at whose end one is still in use fails: then
// something keeps a mount that it should have let go of.
package loopfs
