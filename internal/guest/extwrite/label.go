package extwrite

// An attribute is in an inode after its fields, or in a separate block:
//
//	name length, name index, offset of the value (16 bits), 0, length of the value, hash; name
//
// The entries follow each other up to four zeros; their values are placed from the end backwards.
const (
	attrMagic  = 0xea020000
	attrHeader = 16
	attrBlock  = 32 // bytes before the first entry of a block

	indexSecurity = 6
	labelName     = "selinux"
)

// label returns what SELinux calls a file; nil if nothing.
func (t *inodeTable) label(n inode) ([]byte, error) {
	if at := 0x80 + n.extra(); n.extra() > 0 && at+4 <= int64(len(n.raw)) && le32(n.raw, int(at)) == attrMagic {
		list := n.raw[at+4:]
		if value := findLabel(list, list); value != nil {
			return value, nil
		}
	}
	block := int64(le32(n.raw, 0x68)) | int64(le16(n.raw, 0x76))<<32
	if block == 0 {
		return nil, nil
	}
	b, err := t.stage.read(block)
	if err != nil {
		return nil, err
	}
	if le32(b, 0) != attrMagic {
		return nil, corrupt("inode %d has invalid attributes", n.num)
	}
	return findLabel(b[attrBlock:], b), nil
}

// findLabel searches a list of attributes, whose values are in values.
func findLabel(list, values []byte) []byte {
	for len(list) >= attrHeader && le32(list, 0) != 0 {
		size := attrHeader + (int(list[0])+3)&^3
		if size > len(list) {
			return nil
		}
		at, length := int64(le16(list, 2)), int64(le32(list, 8))
		name := string(list[attrHeader:][:list[0]])
		if list[1] == indexSecurity && name == labelName && le32(list, 4) == 0 && at+length <= int64(len(values)) {
			return values[at : at+length]
		}
		list = list[size:]
	}
	return nil
}

// inherit gives a new file the label of its folder, which is SELinux's behaviour without another rule
// in its policy. A label that does not fit in the inode is left out.
func (t *inodeTable) inherit(n, folder inode) error {
	label, err := t.label(folder)
	if err != nil || len(label) == 0 || n.extra() == 0 {
		return err
	}
	list := n.raw[min(0x80+n.extra()+4, int64(len(n.raw))):]
	value := len(list) - (len(label)+3)&^3
	if value < attrHeader+(len(labelName)+3)&^3+4 {
		return nil
	}
	put32(n.raw, len(n.raw)-len(list)-4, attrMagic)
	list[0], list[1] = byte(len(labelName)), indexSecurity
	put16(list, 2, uint16(value))
	put32(list, 8, uint32(len(label)))
	copy(list[attrHeader:], labelName)
	copy(list[value:], label)
	return nil
}
