// Package erase deletes what an environment has on disk. What ran in a view put
// it there, as root, and may have wished that it stays: deeper than there are
// file descriptors, or with names of any kind; root of the host may have made
// parts of it immutable. Nothing outside of the tree is touched: no link is
// followed, and nothing that is mounted in it is entered.
package erase
