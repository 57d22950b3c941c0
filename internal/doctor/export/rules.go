package export

import (
	"slices"
	"strings"
)

// Access is what a client may do.
type Access uint8

// The kernel's default is the zero value.
const (
	ReadOnly Access = iota
	ReadWrite
	NoAccess
)

// Rules are those options of an export that decide whether and how fast ESXi writes to it.
type Rules struct {
	Access     Access
	Sync       bool
	RootSquash bool
	AllSquash  bool
	Subtree    bool   // each access proves that the file is below the folder
	Secure     bool   // only ports below 1024 are answered; ESXi's are
	Anon       string // user of squashed requests; empty is the server's default
}

// defaults are the defaults of exports(5). Subtree checks were the default until nfs-utils 1.1.0, in
// 2007.
var defaults = Rules{Sync: true, RootSquash: true, Secure: true}

// kernelDefaults are the values of flags that /proc/fs/nfsd/exports does not list.
var kernelDefaults = Rules{Sync: true, RootSquash: true, Secure: true, Subtree: true}

// nobody lists the numbers of the user "nobody": 16 bits, 32 bits, and negative.
var nobody = []string{"65534", "4294967294", "-2"}

// set applies one option as it is written, and reports whether it is one of the rules.
func (r *Rules) set(option string) bool {
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

// isOther reports whether exports(5) knows an option that is not one of the rules.
func isOther(option string) bool {
	name, _, _ := strings.Cut(option, "=")
	return slices.Contains(others, name)
}

// others are options that decide nothing for ESXi. uuid is the kernel's own.
var others = []string{
	"wdelay", "no_wdelay", "hide", "nohide", "crossmnt", "nocrossmnt", "secure_locks", "insecure_locks",
	"auth_nlm", "no_auth_nlm", "acl", "no_acl", "mp", "mountpoint", "fsid", "refer", "replicas", "pnfs",
	"no_pnfs", "security_label", "sec", "anongid", "nordirplus", "xprtsec", "reexport", "uuid", "fg", "bg",
}

// squashed reports whether the server maps ESXi, which writes as root, to another user.
func (r Rules) squashed() bool { return r.RootSquash || r.AllSquash }

// fit are the rules ESXi needs, and is fast with, in place of r.
func (r Rules) fit() Rules {
	r.Access, r.Sync, r.Subtree = ReadWrite, false, false
	if r.Anon == "" {
		r.RootSquash, r.AllSquash = false, false
	}
	return r
}

// options returns the options of exports(5) for r, all of them explicit.
func (r Rules) options() string {
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

// differ are the words of r and o that are not the same, as options in place of others.
func (r Rules) differ(o Rules) (here, there string) {
	a, b := strings.Split(r.options(), ","), strings.Split(o.options(), ",")
	only := func(of, without []string) string {
		return strings.Join(slices.DeleteFunc(slices.Clone(of), func(w string) bool { return slices.Contains(without, w) }), ",")
	}
	return only(a, b), only(b, a)
}
