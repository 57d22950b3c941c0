package vmdk

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// MaxDescriptor is the largest descriptor that is parsed, in bytes. Usual ones have about 600 bytes; a
// disk in 2 GiB pieces needs 40 for each. QEMU has the same limit.
const MaxDescriptor = 1 << 20

// NoParent is the ParentCID of a base disk.
const NoParent CID = math.MaxUint32

// A CID is a content id. It changes with the first write after a disk was opened. If the ParentCID of a
// delta differs from the CID of its parent, the parent was changed after the snapshot.
type CID uint32

// A Descriptor lists the files of a disk.
type Descriptor struct {
	Version        int               // 1 to 3; 4 was seen on vSAN
	Encoding       string            // encoding of the text; "UTF-8" by default. All names here are UTF-8
	CID            CID               // content id
	ParentCID      CID               // NoParent for a base disk
	ParentFile     string            // parentFileNameHint: as written, may be absolute; empty for a base disk
	NativeSnapshot bool              // the storage array has the delta: it cannot be read
	CreateType     string            // createType as written; advice only
	ChangeTrack    string            // changeTrackPath, the CBT bitmap; empty if missing
	Extents        []ExtentLine      // extents in the order of the disk's bytes; at least one
	DDB            map[string]string // the "ddb." entries, lower-cased and without that prefix

	hasKeys bool // the disk is encrypted with keys that the descriptor names
}

// Size returns the disk's virtual size in bytes.
func (d *Descriptor) Size() int64 {
	var sectors int64
	for _, x := range d.Extents {
		sectors += x.Sectors
	}
	return sectors * disk.SectorSize
}

// IsDelta reports whether the disk needs a parent to be read.
func (d *Descriptor) IsDelta() bool { return d.ParentCID != NoParent || d.ParentFile != "" }

// ParseDescriptor parses the text of a descriptor file, or of a descriptor in a sparse file, which ends
// in NULs. A line that begins with a NUL ends the text: QEMU overwrites a longer text with a shorter
// one without removing the rest. Errors are fault.Corrupt or fault.Unsupported and name the line.
//
// The parser accepts differences between real files (case, blanks, line ends, missing section comments,
// unknown keys). It refuses a line that is neither comment, entry nor extent, because dropping it could
// shift the following extents.
func ParseDescriptor(text []byte) (*Descriptor, error) {
	if len(text) > MaxDescriptor {
		return nil, corruptDescriptor("it has %d bytes, more than the %d a descriptor can have", len(text), MaxDescriptor)
	}
	if end := bytes.Index(text, []byte("\n\x00")); end >= 0 {
		text = text[:end+1]
	}
	text, err := decodeText(bytes.TrimRight(bytes.TrimPrefix(text, []byte("\ufeff")), "\x00"))
	if err != nil {
		return nil, err
	}
	if i := bytes.IndexFunc(text, notText); i >= 0 {
		return nil, corruptDescriptor("byte %#02x at offset %d: this is not text", text[i], i)
	}
	p := parser{d: Descriptor{ParentCID: NoParent, Encoding: "UTF-8", DDB: map[string]string{}}, seen: map[string]string{}}
	for line := range strings.Lines(string(text)) {
		p.number++
		if err := p.parseLine(strings.TrimSpace(line)); err != nil {
			return nil, err
		}
	}
	return p.finishDescriptor()
}

// notText reports whether no descriptor contains r. Bytes that are not UTF-8 are accepted, because they
// may belong to another encoding.
func notText(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f }

// A parser builds a Descriptor line by line.
type parser struct {
	d       Descriptor        // descriptor as parsed so far
	number  int               // number of the current line, from 1
	seen    map[string]string // entries by lower-case key
	sectors int64             // sectors of all extents so far
}

// parseLine parses one line without surrounding blanks: a comment, an entry or an extent.
func (p *parser) parseLine(line string) error {
	if line == "" || line[0] == '#' || isSection(line) {
		return nil
	}
	word, rest := cutWord(line)
	if a, ok := parseAccess(word); ok {
		return p.parseExtent(a, rest)
	}
	key, value, ok := strings.Cut(line, "=")
	if !ok {
		return p.corruptEntry("%q is neither an entry nor an extent", line)
	}
	return p.parseEntry(strings.ToLower(strings.TrimSpace(key)), unquote(strings.TrimSpace(value)))
}

// isSection reports whether line is a heading between the sections of a descriptor. Some writers omit
// its #.
func isSection(line string) bool {
	switch strings.ToLower(line) {
	case "disk descriptorfile", "extent description", "change tracking file", "the disk data base":
		return true
	}
	return false
}

// parseEntry parses one "key = value" line. key is in lower case. A repeated key is accepted if its
// values are equal.
func (p *parser) parseEntry(key, value string) error {
	if old, dup := p.seen[key]; dup && old != value {
		return p.corruptEntry("%s is %q here and %q before", key, value, old)
	}
	p.seen[key] = value
	if value != "" && (strings.Contains(key, "keysafe") || strings.Contains(key, "encryptionkey") || strings.Contains(key, "keyid")) {
		p.d.hasKeys = true
	}
	if name, ok := strings.CutPrefix(key, "ddb."); ok {
		p.d.DDB[name] = value
		return nil
	}
	return p.parseHeaderEntry(key, value)
}

// parseHeaderEntry stores the value of a known key of the header. It ignores unknown keys. A value that
// should be a number and is not is fault.Corrupt.
func (p *parser) parseHeaderEntry(key, value string) (err error) {
	switch key {
	case "version":
		p.d.Version, err = strconv.Atoi(value)
	case "encoding":
		p.d.Encoding = value
	case "cid":
		p.d.CID, err = parseCID(value)
	case "parentcid":
		p.d.ParentCID, err = parseCID(value)
	case "parentfilenamehint":
		p.d.ParentFile = value
	case "isnativesnapshot":
		p.d.NativeSnapshot = strings.EqualFold(value, "yes")
	case "createtype":
		p.d.CreateType = value
	case "changetrackpath":
		p.d.ChangeTrack = value
	}
	if err != nil {
		return p.corruptEntry("%s is %q, not a number", key, value)
	}
	return nil
}

// parseCID parses up to eight hex digits. QEMU omits leading zeros.
func parseCID(s string) (CID, error) {
	n, err := strconv.ParseUint(s, 16, 32)
	return CID(n), err
}

// finishDescriptor checks the descriptor as a whole and returns it. It requires an extent, a known
// version, and names that could be decoded.
func (p *parser) finishDescriptor() (*Descriptor, error) {
	if len(p.d.Extents) == 0 {
		return nil, corruptDescriptor("it has no extent line, so it describes no disk")
	}
	if p.d.Version < 0 || p.d.Version > 4 {
		return nil, unsupportedDescriptor("descriptor version %d is not known", p.d.Version).
			WithHint("export the disk as OVF, or clone it with vmkfstools -i, and migrate that")
	}
	for _, x := range p.d.Extents {
		if hasUndecoded(x.File) {
			return nil, corruptLine(x.Line, "file name %q is not in %s, the descriptor's encoding", x.File, p.d.Encoding)
		}
	}
	if hasUndecoded(p.d.ParentFile) {
		return nil, corruptDescriptor("the parent's name %q is not in %s, the descriptor's encoding", p.d.ParentFile, p.d.Encoding)
	}
	return &p.d, nil
}

// isASCII reports whether s has only bytes below 0x80, which are the same in all supported encodings.
func isASCII(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0
}

// cutWord splits off the first word. It removes blanks around both parts.
func cutWord(s string) (word, rest string) {
	s = strings.TrimLeft(s, " \t")
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[:i], strings.TrimSpace(s[i:])
	}
	return s, ""
}

// unquote removes the double quotes around s. It returns s unchanged unless both are there.
func unquote(s string) string {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}

// corruptDescriptor returns a fault.Corrupt error about the descriptor as a whole.
func corruptDescriptor(format string, args ...any) *fault.Error {
	return fault.New(fault.Corrupt, "descriptor: "+format, args...).
		WithHint("open it with a text editor: it must be the small x.vmdk, not x-flat.vmdk or another data file")
}

// corruptLine returns a fault.Corrupt error about a line; the first line is 1.
func corruptLine(line int, format string, args ...any) *fault.Error {
	return corruptDescriptor("line %d: "+format, append([]any{line}, args...)...)
}

// corruptEntry returns a fault.Corrupt error about the current line.
func (p *parser) corruptEntry(format string, args ...any) error {
	return corruptLine(p.number, format, args...)
}

// unsupportedDescriptor returns a fault.Unsupported error. The caller adds the remedy.
func unsupportedDescriptor(format string, args ...any) *fault.Error {
	return fault.New(fault.Unsupported, "descriptor: "+format, args...)
}

// parentFile returns the path of the parent's descriptor as Files.Open expects it, or "" for a base
// disk. name is the path of this descriptor. It fails if the parent is not named, is an object, or lies
// outside the permitted folders.
func (d *Descriptor) parentFile(name string) (string, error) {
	if !d.IsDelta() {
		return "", nil
	}
	if d.ParentFile == "" {
		return "", fault.New(fault.Corrupt, "%s: it is a delta on a parent with CID %08x, but does not name it", name, d.ParentCID).
			WithHint("add the parent's name to the descriptor: parentFileNameHint=\"parent.vmdk\"")
	}
	if isObject(d.ParentFile) {
		return "", unsupportedDescriptor("the parent is the object %s, not a file", d.ParentFile).
			WithHint("move the VM to a VMFS or NFS datastore with Storage vMotion")
	}
	file := withoutDot(d.ParentFile)
	if reason := escapeReason(file); reason != "" {
		return "", fault.New(fault.Corrupt, "%s: parentFileNameHint %q %s", name, d.ParentFile, reason).
			WithHint("copy the parent and its files to the folder of the delta, and write the name without a folder into parentFileNameHint")
	}
	return relativeTo(name, file), nil
}
