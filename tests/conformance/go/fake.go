package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
)

// Fake is a broker that answers every request with the same body, for errors that groupkeeper never
// sends. It gives its address, and ends with the scenario.
func (t *T) Fake(body ...any) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	t.Must(err, "Listen")
	go func() {
		<-t.ctx.Done()
		listener.Close()
	}()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go answer(connection, body)
		}
	}()
	return listener.Addr().String()
}

func answer(connection net.Conn, body []any) {
	defer connection.Close()
	for {
		var size int32
		if binary.Read(connection, binary.BigEndian, &size) != nil {
			return
		}
		request := make([]byte, size)
		if _, err := io.ReadFull(connection, request); err != nil {
			return
		}
		var frame bytes.Buffer
		frame.Write(request[4:8]) // the correlation id
		for _, field := range body {
			if binary.Write(&frame, binary.BigEndian, field) != nil {
				return
			}
		}
		head := binary.BigEndian.AppendUint32(nil, uint32(frame.Len()))
		if _, err := connection.Write(append(head, frame.Bytes()...)); err != nil {
			return
		}
	}
}
