package vmdk

import (
	"math"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// Access is the permission of a VM for an extent. It does not affect the content, except that NoAccess
// reads as zeros.
type Access string

const (
	ReadWrite Access = "RW"       // the VM may write the extent
	ReadOnly  Access = "RDONLY"   // the VM may only read it
	NoAccess  Access = "NOACCESS" // the VM has no access: reads as zeros
)

// parseAccess returns the access keyword at the beginning of an extent line. It returns false for any
// other word.
func parseAccess(word string) (Access, bool) {
	a := Access(strings.ToUpper(word))
	return a, a == ReadWrite || a == ReadOnly || a == NoAccess
}

// ExtentType is the keyword for the format of an extent's file.
type ExtentType string

const (
	Flat       ExtentType = "FLAT"       // raw bytes (Workstation, VirtualBox)
	VMFS       ExtentType = "VMFS"       // raw bytes, whatever file system they are on
	ZeroExtent ExtentType = "ZERO"       // no file: reads as zeros
	Sparse     ExtentType = "SPARSE"     // hosted sparse or stream-optimized
	VMFSSparse ExtentType = "VMFSSPARSE" // COWD delta
	SESparse   ExtentType = "SESPARSE"   // seSparse delta
	VSANSparse ExtentType = "VSANSPARSE" // delta object on vSAN
	VMFSRDM    ExtentType = "VMFSRDM"    // raw device mapping
	VMFSRaw    ExtentType = "VMFSRAW"    // a whole device
)

// An ExtentLine is one piece of a disk.
type ExtentLine struct {
	Line    int        // line of the descriptor, from 1
	Access  Access     // permission of the VM
	Sectors int64      // length in sectors; more than 0
	Type    ExtentType // keyword in upper case; may be unknown
	File    string     // file name, relative to the descriptor's folder and inside it, or below /vmfs/volumes/; empty if there is no file
	Object  string     // object with the data instead of a file: vsan://…, vvol://…, a device
	Offset  int64      // offset of the first byte in File
}

// parseExtent parses the rest of an extent line after its access keyword: sectors type ["file" [offset
// …]]. It ignores fields after the offset (partition UUID, device id).
func (p *parser) parseExtent(a Access, rest string) error {
	count, rest := cutWord(rest)
	kind, rest := cutWord(rest)
	x := ExtentLine{Line: p.number, Access: a, Type: ExtentType(strings.ToUpper(kind))}
	var err error
	if x.Sectors, err = p.parseSectorCount(count); err != nil {
		return err
	}
	if x.Type == ZeroExtent || a == NoAccess {
		p.d.Extents = append(p.d.Extents, x)
		return nil // reads as zeros, even with a file and an offset
	}
	name, rest, err := p.cutQuoted(rest)
	if err != nil {
		return err
	}
	if err := p.setFile(&x, name); err != nil {
		return err
	}
	if x.Offset, err = p.parseOffset(rest); err != nil {
		return err
	}
	p.d.Extents = append(p.d.Extents, x)
	return nil
}

// parseSectorCount parses the length of an extent and adds it to the size of the disk. It fails if the
// sum does not fit into int64 bytes.
func (p *parser) parseSectorCount(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/disk.SectorSize-p.sectors {
		return 0, p.corruptEntry("%q is not a length in sectors", s)
	}
	p.sectors += n
	return n, nil
}

// cutQuoted splits off a name in double quotes, which may contain blanks. The name of a VM, and so of
// its files, may contain a quote that is not escaped. The closing quote is the first that ends the
// line, or is followed by a blank and a number.
func (p *parser) cutQuoted(s string) (name, rest string, err error) {
	if s == "" {
		return "", "", nil
	}
	for i := 1; s[0] == '"' && i < len(s); i++ {
		if s[i] == '"' && closesName(s[i+1:]) {
			return s[1:i], strings.TrimSpace(s[i+1:]), nil
		}
	}
	return "", "", p.corruptEntry("the file name in %s has no quotes around it", s)
}

// closesName reports whether a quote followed by rest closes a name.
func closesName(rest string) bool {
	word, _ := cutWord(rest)
	return word == "" || strings.IndexByte(" \t", rest[0]) >= 0 && strings.Trim(word, "-0123456789") == ""
}

// setFile stores name as the file or the object of the extent. It fails unless a file lies in the
// descriptor's folder or below /vmfs/volumes/.
func (p *parser) setFile(x *ExtentLine, name string) error {
	switch {
	case name == "":
		return p.corruptEntry("a %s extent without a file", x.Type)
	case isObject(name) || isDevice(name) || x.Type == VMFSRaw:
		x.Object = name
		return nil
	}
	x.File = withoutDot(name)
	if reason := escapeReason(x.File); reason != "" {
		return fault.New(fault.Corrupt, "descriptor: line %d: file %q %s", p.number, name, reason).
			WithHint("a disk's files must lie in its own folder: move the disk there with Storage vMotion or vmkfstools -E")
	}
	return nil
}

// isObject reports whether name is an object on vSAN or a vVol datastore, which is not a file.
func isObject(name string) bool {
	return strings.HasPrefix(name, "vsan://") || strings.HasPrefix(name, "vvol://")
}

// isDevice reports whether name is a device of the host, as partitionedDevice and fullDevice disks
// have.
func isDevice(name string) bool {
	return strings.HasPrefix(name, "/dev/") || strings.HasPrefix(name, "/vmfs/devices/") || strings.HasPrefix(name, `\\.\`)
}

// datastores is the folder of a host's datastores. Names below it are searched in the local folders,
// not opened as absolute paths.
const datastores = "/vmfs/volumes/"

// withoutDot returns name without a leading "./", which some writers add.
func withoutDot(name string) string {
	for strings.HasPrefix(name, "./") {
		name = name[2:]
	}
	return name
}

// escapeReason returns why name could lead outside the descriptor's folder and the datastores, as the
// end of an error message. It returns "" if it cannot.
func escapeReason(name string) string {
	switch {
	case name == "":
		return "is a folder"
	case name[0] == '/' && !strings.HasPrefix(name, datastores):
		return "is an absolute path"
	case strings.Contains(name, `\`) || strings.Contains(name, "://") || strings.Index(name, ":") == 1:
		return "has a drive, a scheme or a backslash in it"
	case strings.IndexFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0:
		return "has control characters in it"
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(name, datastores), "/") {
		if part == ".." || part == "." || part == "" {
			return "does not stay in the descriptor's folder"
		}
	}
	return ""
}

// parseOffset parses the optional offset in sectors, and returns it in bytes. It returns 0 if there is
// none.
func (p *parser) parseOffset(rest string) (int64, error) {
	word, _ := cutWord(rest)
	if word == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/disk.SectorSize-p.sectors {
		return 0, p.corruptEntry("%q is not an offset in sectors", word)
	}
	return n * disk.SectorSize, nil
}
