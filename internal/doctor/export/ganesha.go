package export

import (
	"slices"
	"strings"
)

// Ganesha is the configuration of nfs-ganesha.
type Ganesha struct {
	Exports  []Export  // exports for NFSv3; those of one path in the order in which clients are matched
	NoV3     []Export  // exports without NFSv3, the only version that decamp and the guide use
	Problems []Problem // invalid parts of the files
}

// ganeshaDefaults contains the defaults of ganesha-export-config(8). nfs-ganesha has no
// async: it flushes stable writes, and all writes of ESXi are stable.
var ganeshaDefaults = Rules{Access: NoAccess, Sync: true, RootSquash: true}

// ParseGanesha parses ganesha.conf. include returns the files that %include and %dir
// name.
func ParseGanesha(text, file string, include func(directive, name string) []namedText) Ganesha {
	top, problems := parseBlocks(text, file, include)
	g := Ganesha{Problems: problems}
	general := permissions{Rules: ganeshaDefaults, v3: true}
	pseudo, hard := false, true
	for _, b := range top.blocks {
		switch b.name {
		case "export_defaults":
			general = general.withBlock(b)
		case "nfs_core_param":
			pseudo = isTrue(b.firstValue("mount_path_pseudo"))
			hard = offersV3(b, true)
		}
	}
	for _, b := range top.blocks {
		if b.name == "export" {
			g.addBlock(b, general, pseudo, hard)
		}
	}
	return g
}

// permissions contains the options that EXPORT_DEFAULTS, EXPORT and CLIENT share.
type permissions struct {
	Rules
	v3 bool // NFS version 3 is offered
}

// withBlock returns p with the options that a block sets.
func (p permissions) withBlock(b block) permissions {
	switch strings.ToLower(b.firstValue("access_type")) {
	case "rw":
		p.Access = ReadWrite
	case "ro":
		p.Access = ReadOnly
	case "none", "mdonly", "mdonly_ro":
		p.Access = NoAccess
	}
	switch strings.ReplaceAll(strings.ToLower(b.firstValue("squash")), "_", "") {
	case "none", "norootsquash", "noidsquash":
		p.RootSquash, p.AllSquash = false, false
	case "root", "rootsquash", "rootid", "rootidsquash":
		p.RootSquash, p.AllSquash = true, false
	case "all", "allsquash", "allanonymous", "allanomnymous":
		p.RootSquash, p.AllSquash = true, true
	}
	if anon := b.firstValue("anonymous_uid"); anon != "" {
		p.setOption("anonuid=" + anon)
	}
	if port := b.firstValue("privilegedport"); port != "" {
		p.Secure = isTrue(port)
	}
	p.v3 = offersV3(b, p.v3)
	return p
}

// isTrue reports whether a value of the configuration is true.
func isTrue(value string) bool {
	return slices.Contains([]string{"true", "yes"}, strings.ToLower(value))
}

// offersV3 reports whether the Protocols of a block include NFSv3. It returns otherwise
// if the block has no Protocols.
func offersV3(b block, otherwise bool) bool {
	protocols := b.values["protocols"]
	if len(protocols) == 0 {
		return otherwise
	}
	return slices.ContainsFunc(protocols, func(p string) bool {
		return slices.Contains([]string{"3", "v3", "nfs3", "nfsv3"}, strings.ToLower(p))
	})
}

// addBlock adds the exports of an EXPORT block: one for each client of its CLIENT
// blocks, and one for all other hosts. pseudo is true if clients mount the pseudo path.
// hard is false if the server offers no NFSv3 at all.
func (g *Ganesha) addBlock(b block, general permissions, pseudo, hard bool) {
	path := b.firstValue("path")
	if pseudo && b.firstValue("pseudo") != "" {
		path = b.firstValue("pseudo")
	}
	if path == "" {
		g.Problems = append(g.Problems, Problem{b.at, "EXPORT without Path exports nothing", "add Path = /folder;"})
		return
	}
	own := general.withBlock(b)
	for _, inner := range b.blocks {
		if inner.name != "client" {
			continue
		}
		for _, c := range inner.values["clients"] {
			g.addExport(Export{Path: path, Client: Client(c).canonical(), Rules: own.withBlock(inner).Rules, At: inner.at}, hard && own.withBlock(inner).v3)
		}
	}
	// CLIENT blocks override the EXPORT block, which applies to all other hosts.
	if own.Access != NoAccess {
		g.addExport(Export{Path: path, Client: Everybody, Rules: own.Rules, At: b.at}, hard && own.v3)
	}
}

// addExport adds an export to the list for its version.
func (g *Ganesha) addExport(e Export, v3 bool) {
	if v3 {
		g.Exports = append(g.Exports, e)
		return
	}
	g.NoV3 = append(g.NoV3, e)
}
