package nfs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/nfs/xdr"
)

// A shape takes the results of a call, or a part of them, as RFC 1813 spells them. It is
// written from there and knows nothing of the server.
type shape func(d *xdr.Decoder)

func words(n int) shape {
	return func(d *xdr.Decoder) {
		for range n {
			d.Uint32()
		}
	}
}

func list(parts ...shape) shape {
	return func(d *xdr.Decoder) {
		for _, p := range parts {
			p(d)
		}
	}
}

// maybe is an optional part.
func maybe(part shape) shape {
	return func(d *xdr.Decoder) {
		if d.Bool() {
			part(d)
		}
	}
}

// chain is a linked list.
func chain(entry shape) shape {
	return func(d *xdr.Decoder) {
		for d.Bool() {
			entry(d)
		}
	}
}

func opaque(least, most int) shape {
	return func(d *xdr.Decoder) {
		if n := len(d.Opaque(most)); n < least {
			d.Fail("%d bytes, want %d at least", n, least)
		}
	}
}

func flag(d *xdr.Decoder) { d.Bool() }

// pathBelow is an enumeration from 0 on.
func pathBelow(n uint32) shape {
	return func(d *xdr.Decoder) {
		if v := d.Uint32(); v >= n {
			d.Fail("%d, want less than %d", v, n)
		}
	}
}

// shapeOfAttr is fattr3: 4 words, then size, used, rdev, fsid and fileid, then three times.
func shapeOfAttr(d *xdr.Decoder) {
	const types, second = 7, 1e9
	if kind := d.Uint32(); kind < 1 || kind > types {
		d.Fail("file of type %d", kind)
	}
	words(4 + 5*2)(d)
	for range 3 {
		d.Uint32()
		if nsec := d.Uint32(); nsec >= second {
			d.Fail("%d nanoseconds", nsec)
		}
	}
}

// shapeOfData is count, eof and data of READ.
func shapeOfData(d *xdr.Decoder) {
	count := d.Uint32()
	d.Bool()
	if n := len(d.Opaque(1 << 20)); n != int(count) {
		d.Fail("count %d of %d bytes", count, n)
	}
}

// shapes are what each procedure answers: after NFS3_OK, and after an error.
func shapes() map[uint32][2]shape {
	post := maybe(shapeOfAttr)
	wcc := list(maybe(words(6)), post)
	handle, verf := opaque(1, 64), words(2)
	name := opaque(1, 255)
	made := [2]shape{list(maybe(handle), post, wcc), wcc}
	entry := list(words(2), name, words(2))
	return map[uint32][2]shape{
		pGetattr:     {shapeOfAttr, list()},
		pSetattr:     {wcc, wcc},
		pLookup:      {list(handle, post, post), post},
		pAccess:      {list(post, words(1)), post},
		pReadlink:    {list(post, opaque(1, 4096)), post},
		pRead:        {list(post, shapeOfData), post},
		pWrite:       {list(wcc, words(1), pathBelow(3), verf), wcc},
		pCreate:      made,
		pMkdir:       made,
		pSymlink:     made,
		pMknod:       made,
		pRemove:      {wcc, wcc},
		pRmdir:       {wcc, wcc},
		pRename:      {list(wcc, wcc), list(wcc, wcc)},
		pLink:        {list(post, wcc), list(post, wcc)},
		pReaddir:     {list(post, verf, chain(entry), flag), post},
		pReaddirplus: {list(post, verf, chain(list(entry, post, maybe(handle))), flag), post},
		pFsstat:      {list(post, words(13)), post},
		pFsinfo:      {list(post, words(7), words(2), words(2), words(1)), post},
		pPathconf:    {list(post, words(2), flag, flag, flag, flag), post},
		pCommit:      {list(wcc, verf), wcc},
	}
}

// knownStatus is nfsstat3.
var knownStatus = map[uint32]bool{
	0: true, 1: true, 2: true, 5: true, 6: true, 13: true, 17: true, 18: true, 19: true, 20: true, 21: true, 22: true, 27: true,
	28: true, 30: true, 31: true, 63: true, 66: true, 69: true, 70: true, 71: true, 10001: true, 10002: true, 10003: true,
	10004: true, 10005: true, 10006: true, 10007: true, 10008: true,
}

var errShape = errors.New("not a reply")

// accepted takes the header of an accepted reply off. A call that makes the server panic is
// answered with SYSTEM_ERR, which is never right.
func accepted(reply []byte) (results []byte, garbage bool, err error) {
	const header, garbageArgs = 24, 4
	if len(reply) < header || len(reply)%4 != 0 {
		return nil, false, fmt.Errorf("%w: %d bytes", errShape, len(reply))
	}
	if head := reply[4:20]; !bytes.Equal(head, []byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}) {
		return nil, false, fmt.Errorf("%w: % x", errShape, head)
	}
	switch stat := binary.BigEndian.Uint32(reply[20:]); stat {
	case 0:
		return reply[header:], false, nil
	case garbageArgs:
		return reply[header:], true, rest(bytes.NewReader(reply[header:]))
	default:
		return nil, false, fmt.Errorf("%w: accept_stat %d", errShape, stat)
	}
}

// checkReply fails unless a reply is what its procedure answers. It returns the results,
// nil for a call whose arguments were garbage.
func checkReply(procedure uint32, reply []byte) ([]byte, error) {
	results, garbage, err := accepted(reply)
	if err != nil || garbage {
		return nil, err
	}
	r := bytes.NewReader(results)
	if procedure == 0 {
		return results, rest(r)
	}
	d := xdr.NewDecoder(r)
	status := d.Uint32()
	if !knownStatus[status] {
		return nil, fmt.Errorf("%w: nfsstat3 %d", errShape, status)
	}
	which := 0
	if status != 0 {
		which = 1
	}
	shapes()[procedure][which](d)
	if d.Err() != nil {
		return nil, fmt.Errorf("results % x: %w", results, d.Err())
	}
	return results, rest(r)
}

func rest(r *bytes.Reader) error {
	if r.Len() > 0 {
		return fmt.Errorf("%w: %d bytes too long", errShape, r.Len())
	}
	return nil
}
