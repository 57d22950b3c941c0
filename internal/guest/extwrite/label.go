package extwrite

// An attribute is in an inode after its fields, or in a separate block:
//
//	name length, name index, offset of the value (16 bits), 0, length of the value, hash; name
//
// The entries follow each other up to four zeros; their values are placed from the end backwards.
const (
	attrMagic  = 0xea020000 // first word of an attribute list (EXT4_XATTR_MAGIC)
	attrHeader = 16         // bytes of an entry before its name
	attrBlock  = 32         // bytes before the first entry of a separate block

	indexSecurity = 6         // name index of the prefix "security." (EXT4_XATTR_INDEX_SECURITY)
	labelName     = "selinux" // rest of the name: security.selinux
)

// readLabel returns the SELinux label of a file, from the inode or its attribute block. It is nil
// if the file has none.
func (t *inodeTable) readLabel(n inode) ([]byte, error) {
	if at := 0x80 + n.extraSize(); n.extraSize() > 0 && at+4 <= int64(len(n.raw)) && le32(n.raw, int(at)) == attrMagic {
		list := n.raw[at+4:]
		if value := findLabel(list, list); value != nil {
			return value, nil
		}
	}
	block := int64(le32(n.raw, 0x68)) | int64(le16(n.raw, 0x76))<<32
	if block == 0 {
		return nil, nil
	}
	b, err := t.stage.readBlock(block)
	if err != nil {
		return nil, err
	}
	if le32(b, 0) != attrMagic {
		return nil, corrupt("inode %d has invalid attributes", n.num)
	}
	return findLabel(b[attrBlock:], b), nil
}

// findLabel returns the SELinux label in a list of attributes, or nil. Offsets of values count from the
// beginning of values. Entries that exceed the list end the search.
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

// copyLabel copies the SELinux label of the folder to a new file, which is SELinux's default without a
// more specific rule. A label that does not fit the inode is omitted.
func (t *inodeTable) copyLabel(n, folder inode) error {
	label, err := t.readLabel(folder)
	if err != nil || len(label) == 0 || n.extraSize() == 0 {
		return err
	}
	list := n.raw[min(0x80+n.extraSize()+4, int64(len(n.raw))):]
	// Values are at the end of the inode, aligned to four bytes.
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
