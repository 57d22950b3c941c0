// Package nfs tests a landing as a whole: a server that is killed or loses its power while a
// host writes, disks that fill up, fail or are slow, and the NFS clients of other projects. It
// contains only tests.
package nfs
