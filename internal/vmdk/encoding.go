package vmdk

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
)

// encodingOf returns the function that decodes the encoding that a descriptor names, nil for UTF-8. VMware's products write the
// code page of the machine that they run on.
func encodingOf(name string) (decode func([]byte) []byte, ok bool) {
	plain := strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(name))
	switch plain {
	case "utf8", "usascii", "ascii":
		return nil, true
	case "windows1250":
		return charmapDecoder(charmap.Windows1250), true
	case "windows1251":
		return charmapDecoder(charmap.Windows1251), true
	case "windows1252", "iso88591":
		return charmapDecoder(charmap.Windows1252), true
	case "gbk", "gb2312", "gb18030", "windows936":
		return gb18030.decodeAll, true // a superset of the others
	case "big5", "windows950":
		return big5.decodeAll, true
	case "shiftjis", "sjis", "windows932":
		return shiftJIS.decodeAll, true
	case "euckr", "windows949":
		return eucKR.decodeAll, true
	}
	return nil, false
}

// charmapDecoder returns the function that decodes a code page with one byte for each character.
func charmapDecoder(c *charmap.Charmap) func([]byte) []byte {
	return func(text []byte) []byte {
		out := make([]byte, 0, len(text))
		for _, b := range text {
			out = utf8.AppendRune(out, c.DecodeByte(b))
		}
		return out
	}
}

// decodeText returns the text of a descriptor in UTF-8. Text that is ASCII, as most is, needs no known
// encoding. An invalid byte becomes U+FFFD, which no file name may contain. An unknown encoding is
// fault.Unsupported.
func decodeText(text []byte) ([]byte, error) {
	name := encodingName(text)
	if name == "" || isASCII(string(text)) {
		return text, nil
	}
	decode, ok := encodingOf(name)
	if !ok {
		return nil, unsupportedDescriptor("it is in encoding %q, which is not known", name).
			WithHint("rename the disk to plain ASCII: vmkfstools -E old.vmdk new.vmdk on the host, then edit the VM's disk path")
	}
	if decode == nil {
		return text, nil
	}
	return decode(text), nil
}

// encodingName returns the value of the entry "encoding", or "" if the entry is missing. The entry itself is
// ASCII in all encodings.
func encodingName(text []byte) string {
	for line := range bytes.Lines(text) {
		key, value, ok := strings.Cut(string(line), "=")
		if ok && strings.EqualFold(strings.TrimSpace(key), "encoding") {
			return unquote(strings.TrimSpace(value))
		}
	}
	return ""
}

// hasUndecoded reports whether a name contains bytes that could not be decoded. Such a name is refused,
// because a guess could find another file.
func hasUndecoded(name string) bool {
	return !utf8.ValidString(name) || strings.ContainsRune(name, utf8.RuneError)
}
