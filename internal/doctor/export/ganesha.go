package export

import (
	"slices"
	"strings"
)

// Ganesha is nfs-ganesha's configuration.
type Ganesha struct {
	Exports  []Export // exports for NFSv3; those of one path in the order in which clients are matched
	NoV3     []Export // exports without NFSv3, the only version that decamp and the guide use
	Problems []Problem
}

// ganeshaDefaults are those of ganesha-export-config(8). It has no async: what a client wants
// stable is flushed, and ESXi wants everything stable.
var ganeshaDefaults = Rules{Access: NoAccess, Sync: true, RootSquash: true}

// ParseGanesha reads ganesha.conf. include returns the texts that %include and %dir name.
func ParseGanesha(text, file string, include func(directive, name string) []namedText) Ganesha {
	top, problems := parseBlocks(text, file, include)
	g := Ganesha{Problems: problems}
	general := permissions{Rules: ganeshaDefaults, v3: true}
	pseudo, hard := false, true
	for _, b := range top.blocks {
		switch b.name {
		case "export_defaults":
			general = general.with(b)
		case "nfs_core_param":
			pseudo = isTrue(b.value("mount_path_pseudo"))
			hard = offersV3(b, true)
		}
	}
	for _, b := range top.blocks {
		if b.name == "export" {
			g.export(b, general, pseudo, hard)
		}
	}
	return g
}

// permissions are the options that EXPORT_DEFAULTS, EXPORT and CLIENT share.
type permissions struct {
	Rules
	v3 bool
}

// with returns p as a block changes it.
func (p permissions) with(b block) permissions {
	switch strings.ToLower(b.value("access_type")) {
	case "rw":
		p.Access = ReadWrite
	case "ro":
		p.Access = ReadOnly
	case "none", "mdonly", "mdonly_ro":
		p.Access = NoAccess
	}
	switch strings.ReplaceAll(strings.ToLower(b.value("squash")), "_", "") {
	case "none", "norootsquash", "noidsquash":
		p.RootSquash, p.AllSquash = false, false
	case "root", "rootsquash", "rootid", "rootidsquash":
		p.RootSquash, p.AllSquash = true, false
	case "all", "allsquash", "allanonymous", "allanomnymous":
		p.RootSquash, p.AllSquash = true, true
	}
	if anon := b.value("anonymous_uid"); anon != "" {
		p.set("anonuid=" + anon)
	}
	if port := b.value("privilegedport"); port != "" {
		p.Secure = isTrue(port)
	}
	p.v3 = offersV3(b, p.v3)
	return p
}

func isTrue(value string) bool {
	return slices.Contains([]string{"true", "yes"}, strings.ToLower(value))
}

// offersV3 reports whether a block's Protocols include NFSv3; otherwise is the default.
func offersV3(b block, otherwise bool) bool {
	protocols := b.values["protocols"]
	if len(protocols) == 0 {
		return otherwise
	}
	return slices.ContainsFunc(protocols, func(p string) bool {
		return slices.Contains([]string{"3", "v3", "nfs3", "nfsv3"}, strings.ToLower(p))
	})
}

func (g *Ganesha) export(b block, general permissions, pseudo, hard bool) {
	path := b.value("path")
	if pseudo && b.value("pseudo") != "" {
		path = b.value("pseudo")
	}
	if path == "" {
		g.Problems = append(g.Problems, Problem{b.at, "an EXPORT without a Path exports nothing", "add Path = /folder;"})
		return
	}
	own := general.with(b)
	for _, inner := range b.blocks {
		if inner.name != "client" {
			continue
		}
		for _, c := range inner.values["clients"] {
			g.add(Export{Path: path, Client: Client(c).canonical(), Rules: own.with(inner).Rules, At: inner.at}, hard && own.with(inner).v3)
		}
	}
	if own.Access != NoAccess {
		g.add(Export{Path: path, Client: Everybody, Rules: own.Rules, At: b.at}, hard && own.v3)
	}
}

func (g *Ganesha) add(e Export, v3 bool) {
	if v3 {
		g.Exports = append(g.Exports, e)
		return
	}
	g.NoV3 = append(g.NoV3, e)
}
