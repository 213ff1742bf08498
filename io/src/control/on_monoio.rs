//! The seam on a monoio runtime: the control core where io_uring is missing, and questions a shard
//! asks workers for an admin route. Task classes are not told apart here; every task yields often
//! enough for the others.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use monoio::buf::{IoBuf, IoBufMut};
use monoio::io::{AsyncReadRent, AsyncWriteRent};
use monoio::net::{TcpListener, TcpStream};

use super::seam::{Class, Runtime, Stream};

/// The monoio runtime of this thread, whatever its driver.
#[derive(Debug, Clone, Copy)]
pub struct Monoio;

impl Runtime for Monoio {
    type Stream = TcpStream;
    type Listener = TcpListener;

    fn spawn(self, _class: Class, task: impl Future<Output = ()> + 'static) {
        drop(monoio::spawn(task));
    }

    async fn sleep(self, duration: Duration) {
        monoio::time::sleep(duration).await;
    }

    async fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect_addr(addr).await
    }

    fn listen(self, listener: std::net::TcpListener) -> io::Result<TcpListener> {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    }

    async fn accept(self, listener: &TcpListener) -> io::Result<TcpStream> {
        listener.accept().await.map(|(stream, _)| stream)
    }
}

impl Stream for TcpStream {
    async fn read(&mut self, mut buf: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        let start = buf.len();
        buf.reserve(1);
        let end = buf.capacity();
        let (outcome, slice) = AsyncReadRent::read(self, buf.slice_mut(start..end)).await;
        (outcome, slice.into_inner())
    }

    async fn write_all(&mut self, mut data: Vec<u8>) -> io::Result<()> {
        let mut start = 0;
        while start < data.len() {
            let (outcome, slice) = AsyncWriteRent::write(self, data.slice(start..)).await;
            data = slice.into_inner();
            match outcome? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => start += written,
            }
        }
        Ok(())
    }
}
