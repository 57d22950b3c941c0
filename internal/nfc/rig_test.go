package nfc

import "time"

// testStall is longer than any operation in a test takes on a loaded machine.
const testStall = 30 * time.Second
