package export

import (
	"slices"
	"strings"
)

// Access is the access that a client has. The zero value is ReadOnly, the default of
// exports(5).
type Access uint8

// The kernel's default is the zero value.
const (
	ReadOnly  Access = iota // clients may read; the kernel's default
	ReadWrite               // clients may read and write
	NoAccess                // clients may not mount; nfs-ganesha only
)

// Rules contains the options of an export that determine whether and how fast ESXi can
// write to it.
type Rules struct {
	Access     Access // read-write, read-only or none
	Sync       bool   // each write is on the medium before the reply
	RootSquash bool   // root is mapped to another user
	AllSquash  bool   // all users are mapped to another user
	Subtree    bool   // each request verifies that the file is below the folder
	Secure     bool   // only ports below 1024 are accepted; ESXi uses such ports
	Anon       string // user for mapped requests; empty for the server's default
}

// defaults contains the defaults of exports(5). Before nfs-utils 1.1.0 (2007), subtree
// checks were the default.
var defaults = Rules{Sync: true, RootSquash: true, Secure: true}

// kernelDefaults contains the values of the flags that /proc/fs/nfsd/exports does not
// list.
var kernelDefaults = Rules{Sync: true, RootSquash: true, Secure: true, Subtree: true}

// nobody lists the numbers of the user "nobody": 16 bits, 32 bits, and negative.
var nobody = []string{"65534", "4294967294", "-2"}

// setOption applies one option in the format of exports(5), and reports whether it is
// one of the rules.
func (r *Rules) setOption(option string) bool {
	name, value, _ := strings.Cut(option, "=")
	switch name {
	case "ro":
		r.Access = ReadOnly
	case "rw":
		r.Access = ReadWrite
	case "sync", "async":
		r.Sync = name == "sync"
	case "root_squash", "no_root_squash":
		r.RootSquash = name == "root_squash"
	case "all_squash", "no_all_squash":
		r.AllSquash = name == "all_squash"
	case "subtree_check", "no_subtree_check":
		r.Subtree = name == "subtree_check"
	case "secure", "insecure":
		r.Secure = name == "secure"
	case "anonuid":
		r.Anon = value
		if slices.Contains(nobody, value) {
			r.Anon = ""
		}
	default:
		return false
	}
	return true
}

// isOther reports whether exports(5) has an option that is not one of the rules.
func isOther(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	return slices.Contains(others, name)
}

// others lists the options that do not affect ESXi. uuid occurs only in the kernel's
// table.
var others = []string{
	"wdelay", "no_wdelay", "hide", "nohide", "crossmnt", "nocrossmnt", "secure_locks", "insecure_locks",
	"auth_nlm", "no_auth_nlm", "acl", "no_acl", "mp", "mountpoint", "fsid", "refer", "replicas", "pnfs",
	"no_pnfs", "security_label", "sec", "anongid", "nordirplus", "xprtsec", "reexport", "uuid", "fg", "bg",
}

// isSquashed reports whether the server maps root, the user of ESXi, to another user.
func (r Rules) isSquashed() bool { return r.RootSquash || r.AllSquash }

// corrected returns r with the rules that ESXi needs, and with fast writes. Squashing
// remains if r maps to a specific user.
func (r Rules) corrected() Rules {
	r.Access, r.Sync, r.Subtree = ReadWrite, false, false
	if r.Anon == "" {
		r.RootSquash, r.AllSquash = false, false
	}
	return r
}

// toOptions returns all rules as explicit options of exports(5).
func (r Rules) toOptions() string {
	pick := func(is bool, yes, no string) string {
		if is {
			return yes
		}
		return no
	}
	words := []string{
		pick(r.Access == ReadWrite, "rw", "ro"),
		pick(r.Sync, "sync", "async"),
		pick(r.RootSquash, "root_squash", "no_root_squash"),
		pick(r.Subtree, "subtree_check", "no_subtree_check"),
	}
	if r.AllSquash {
		words = append(words, "all_squash")
	}
	if r.Anon != "" {
		words = append(words, "anonuid="+r.Anon)
	}
	if !r.Secure {
		words = append(words, "insecure")
	}
	return strings.Join(words, ",")
}

// diffOptions returns the options of r and of o that differ.
func (r Rules) diffOptions(o Rules) (here, there string) {
	a, b := strings.Split(r.toOptions(), ","), strings.Split(o.toOptions(), ",")
	only := func(of, without []string) string {
		return strings.Join(slices.DeleteFunc(slices.Clone(of), func(w string) bool { return slices.Contains(without, w) }), ",")
	}
	return only(a, b), only(b, a)
}
