// Package xattr reads and writes the extended attributes of one object, named
// relative to an open directory, and knows which of them a plan carries.
//
// Three kinds are kept apart. Plannable attributes are part of what a change
// says: ACLs, file capabilities, user.* and trusted.*. Labels (SELinux, Smack,
// IMA and EVM signatures) belong to the place or to the content, so they are
// never taken from a view. Everything else, such as btrfs.compression or
// system.nfs4_acl, is a property of one filesystem: a layer cannot hold it, so it
// is not compared, and a replacement inherits it from what it replaces.
//
// See xattr(7), acl(5), capabilities(7).
package xattr
