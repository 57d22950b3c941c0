// Package nfs holds the tests of a landing as a whole: a server that is killed or loses its
// power under a host that writes, disks that fill up, fail or crawl, and the clients of
// others. It has nothing but tests.
package nfs
