package guest

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Marker is the text that the test guests print on their first serial port after they have booted.
const Marker = "DECAMP-MARKER boot=ok"

// BootSector writes the image of a guest without an operating system, which boots without KVM in less than a second of
// processor time. After the delay the guest counts the boot on its disk, and prints Marker and the count ("n=1"). It
// prints them again after each key on the serial port. It does not power off.
func BootSector(t testing.TB, delay time.Duration) string {
	t.Helper()
	const tick = time.Second * 10 / 182 // of the BIOS's timer
	text := "\r\n" + Marker + " n=0 \r\n"
	program := []byte{
		0x31, 0xc0, // xor ax, ax
		0x8e, 0xd8, // mov ds, ax
		0x8e, 0xc0, // mov es, ax
		0xfc, 0xfb, // cld; sti
		0xb9, 0, 0, // mov cx, ticks
		0xf4,       // hlt: until the next tick
		0xe2, 0xfd, // loop to hlt
		0xb8, 0x01, 0x02, // mov ax, 0x0201: read a sector
		0xb9, 0x02, 0x00, // mov cx, 2: the second one
		0xb6, 0x00, // mov dh, 0
		0xbb, 0x00, 0x7e, // mov bx, 0x7e00
		0xcd, 0x13, // int 0x13
		0xfe, 0x06, 0, 0, // inc byte [the digit]
		0xb8, 0x01, 0x03, // mov ax, 0x0301: write the sector
		0xb9, 0x02, 0x00, // mov cx, 2
		0xcd, 0x13, // int 0x13
		0x31, 0xd2, // xor dx, dx: the first serial port
		0xbe, 0x00, 0x7e, // print: mov si, 0x7e00
		0xac,       // next: lodsb
		0x84, 0xc0, // test al, al
		0x74, 0x06, // jz wait
		0xb4, 0x01, // mov ah, 1
		0xcd, 0x14, // int 0x14: send al
		0xeb, 0xf5, // jmp next
		0xf4,       // wait: hlt
		0xb4, 0x03, // mov ah, 3
		0xcd, 0x14, // int 0x14: the state of the port
		0xf6, 0xc4, 0x01, // test ah, 1: a key has come
		0x74, 0xf6, // jz wait
		0xb4, 0x02, // mov ah, 2
		0xcd, 0x14, // int 0x14: read it
		0xeb, 0xe2, // jmp print
	}
	binary.LittleEndian.PutUint16(program[9:], uint16(1+delay/tick))
	binary.LittleEndian.PutUint16(program[29:], uint16(0x7e00+len(text)-len("0 \r\n")))
	disk := make([]byte, 1<<20)
	copy(disk, program)
	disk[510], disk[511] = 0x55, 0xaa
	copy(disk[512:], text)
	path := filepath.Join(t.TempDir(), "guest.raw")
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
