package planfile

import (
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// A Destination is where VMs are delivered, written as KIND:ADDRESS:
//
// \tdir:/srv/vm a folder
// \tkubevirt:/srv/vm?namespace=vms a folder with manifests beside the images
// \tlibvirt:qemu:///system?pool=default&staging=/srv/stage libvirt
// \tproxmox:https://pve1:8006/pve1?storage=local-lvm&staging=/srv/stage a node of Proxmox VE
// \topenstack:mycloud?network=lan&staging=/srv/stage a project of OpenStack
// \tplace:rack1?staging=/srv/stage a place of the access file, see Access
//
// Platforms receive VMs from a folder of this machine, the staging folder. The package of the platform
// parses the rest of the address.
type Destination string

// Kinds of destinations.
const (
	Dir       = "dir"       // folder with images, a domain and manifests
	Libvirt   = "libvirt"   // libvirt daemon
	Proxmox   = "proxmox"   // node of Proxmox VE
	KubeVirt  = "kubevirt"  // folder with manifests of KubeVirt; with a kubeconfig also the cluster
	OpenStack = "openstack" // project of an OpenStack cloud
	Place     = "place"     // named place of the access file
)

// stageKey is the parameter with the staging folder.
const stageKey = "staging"

var (
	folders = []string{Dir, KubeVirt}                      // their address is a folder
	places  = []string{Libvirt, Proxmox, OpenStack, Place} // theirs is a URL or a name, and they have a staging folder
)

// destinationHint is the remedy for an invalid destination.
const destinationHint = "write dir:/FOLDER, libvirt:qemu:///system?staging=/FOLDER, proxmox:https://HOST:8006/NODE?staging=/FOLDER, openstack:CLOUD?staging=/FOLDER, kubevirt:/FOLDER or place:NAME?staging=/FOLDER"

// textForm has a pattern that accepts all kinds; ParseDestination checks more.
func (Destination) textForm() form {
	return form{pattern: `^(dir:/|kubevirt:/|libvirt:|openstack:|proxmox:https://|place:[A-Za-z0-9]).*$`, example: "dir:/srv/vm"}
}

// parseText accepts absolute folders only: a plan has no working directory.
func (d *Destination) parseText(s string) error {
	parsed, err := ParseDestination(s, LocalDefaults{})
	if err == nil {
		*d = parsed
	}
	return err
}

// LocalDefaults completes destinations that a user types at a command line.
type LocalDefaults struct {
	Folder  string // base of relative folders; none are permitted if empty
	Staging string // default staging folder; destinations must name one if empty
}

// absPath returns an absolute folder: relative ones start at h.Folder.
func (h LocalDefaults) absPath(folder string) string {
	if folder == "" || filepath.IsAbs(folder) {
		return folder
	}
	return filepath.Join(h.Folder, folder)
}

// ParseDestination parses s and returns it in its normal form: a clean absolute folder, or a staging
// folder as a parameter. It fails if the folder is missing or not absolute. Parameters of platforms are
// not checked.
func ParseDestination(s string, here LocalDefaults) (Destination, error) {
	kind, address, _ := strings.Cut(s, ":")
	d := Destination(s)
	switch {
	case strings.ContainsAny(s, "\n\x00"):
		return "", fault.New(fault.Invalid, "%q is not a destination", s).WithHint(destinationHint)
	case slices.Contains(folders, kind):
		folder, rest, found := strings.Cut(address, "?")
		if kind == Dir { // any folder, also one with a question mark
			folder, rest, found = address, "", false
		}
		d = Destination(kind + ":" + filepath.Clean(here.absPath(folder)))
		if found {
			d += Destination("?" + rest)
		}
	case slices.Contains(places, kind) && (address != "" || d == OpenStack+":"): // the environment may have its name
		if here.Staging != "" && d.Folder() == "" {
			d = d.withStaging(here.absPath(here.Staging))
		}
		if d.Folder() == "" {
			return "", fault.New(fault.Invalid, "%s: the staging folder of this machine is missing", s).
				WithHint("add the parameter staging=/FOLDER; the folder needs space for the VMs that are being migrated")
		}
		if kind == Place && (!IsName(d.Address()) || len(d.parameters()[stageKey]) != 1 || strings.ContainsAny(d.Folder(), "?\n\x00")) {
			return "", fault.New(fault.Invalid, "%s: a named place has only a name and staging=/FOLDER", s).
				WithHint("write place:NAME?staging=/FOLDER; an administrator sets everything else of the place")
		}
	default:
		return "", fault.New(fault.Invalid, "%q is not a destination", s).WithHint(destinationHint)
	}
	if !filepath.IsAbs(d.Folder()) {
		return "", fault.New(fault.Invalid, "%q is not an absolute path, which a plan requires", d.Folder()).WithHint(destinationHint)
	}
	return d, nil
}

// withStaging appends the staging folder as a parameter.
func (d Destination) withStaging(folder string) Destination {
	sign := "?"
	if strings.Contains(string(d), "?") {
		sign = "&"
	}
	return d + Destination(sign+stageKey+"="+url.QueryEscape(folder))
}

// Kind returns the part before the first colon.
func (d Destination) Kind() string {
	kind, _, _ := strings.Cut(string(d), ":")
	return kind
}

// Folder returns the folder of this machine in which images are written: the address of a folder, or
// the staging folder of a platform. It is empty if d has none.
func (d Destination) Folder() string {
	kind, address, _ := strings.Cut(string(d), ":")
	if kind == Dir {
		return address
	}
	path, query, _ := strings.Cut(address, "?")
	if slices.Contains(folders, kind) {
		return path
	}
	v, err := url.ParseQuery(query)
	if err != nil || v.Get(stageKey) == "" {
		return ""
	}
	return filepath.Clean(v.Get(stageKey))
}

// parameters returns the parameters after the question mark; nil if they cannot be parsed.
func (d Destination) parameters() url.Values {
	_, query, _ := strings.Cut(string(d), "?")
	v, err := url.ParseQuery(query)
	if err != nil {
		return nil
	}
	return v
}

// Address returns d without the kind and the staging folder, for the package of the platform.
func (d Destination) Address() string {
	kind, address, _ := strings.Cut(string(d), ":")
	path, query, found := strings.Cut(address, "?")
	if kind == Dir || !found {
		return address
	}
	kept := slices.DeleteFunc(strings.Split(query, "&"), func(p string) bool { return strings.HasPrefix(p, stageKey+"=") })
	if len(kept) == 0 {
		return path
	}
	return path + "?" + strings.Join(kept, "&")
}
