// Package hostfiles applies and reverts file changes on the real host: regular
// files, with holes or several names, directories, symlinks and fifos; added,
// modified, deleted, or replaced by another type; with owner, mode, times, ACLs,
// capabilities and other extended attributes.
//
// It is a typed adapter, [backends.Host], that a transaction drives phase by
// phase. Everything wanted is first built in one hidden directory per mount, as
// high up that mount as it can be, so that no program which reads a
// configuration directory ever meets a temporary file. Only when all of it is
// durable does a single renameat2(2) per entry exchange it with what stands at
// the target, and the exchanged original, its inode untouched, is the backup.
// Two flushes do, however many files there are.
//
// A directory moves with everything below it in one rename; the steps below it
// are carried and do nothing of their own, but are verified and, where they were
// added, undone one by one, because somebody may have put a file among them.
//
// The names of a wanted hard-link group are staged as one file and put in place
// one by one. A directory that stays is changed in place, in several calls, each
// of which leaves only values that are the old or the wanted ones. A fifo is never
// opened. Security labels come from the place.
//
// A second copy of the originals is a tar file that GNU tar unpacks. What comes
// back from it joins the inode that it was, where that lives on unchanged under
// another name.
//
// In replay an object is recognised by inode number and content, never by
// position: ours goes back, the original stays, and anything else is somebody
// else's work, which is left alone and reported. Undo and Clean need no space.
//
// The package never follows a symlink. Paths are walked with openat2(2) below
// the root, and a parent that is another directory than at snapshot time is
// refused. It does not decide anything and writes no journal; that is
// workflow/txn.
package hostfiles
