// Package mount shows the datastores of an ESXi host as a folder.
package mount

import _ "github.com/hanwen/go-fuse/v2/fs"
