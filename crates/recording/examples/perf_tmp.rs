//! temporary
#[path = "../tests/common/mod.rs"] mod common;
use common::*; use recording::{Folder,Recording}; use std::time::Instant; use model::log::{Kind,Origin,CallRecord};
fn main() {
    let dir = std::path::PathBuf::from(std::env::args().nth(1).unwrap());
    let _ = std::fs::remove_dir_all(&dir);
    let f = Folder::create(&dir, &meta()).unwrap();
    let mut r = Random(3);
    let mut segs = Vec::new();
    for s in 0..16 {
        let mut v = Vec::new(); let mut bytes = 0;
        if s == 0 { v.push(start(Origin::First, FIRST)); }
        while bytes < (64<<20) - 8192 {
            let call = CallRecord{thread:0,nr:r.below(4) as u32,pc:0x400000+r.below(1000) as u64,tick:bytes as u64,args:[3,0x7fff0000,4096,0,0,0],result:r.below(4096) as i64,digest:r.next(),time:bytes as u64*3,file:0,opened:0};
            let rec = record(Kind::Call, &call.encode()); bytes += rec.len(); v.push(rec);
            let n = r.below(600); let p: Vec<u8> = (0..n+8).map(|i| (i*7) as u8 ^ (r.0>>40) as u8 & 3).collect();
            let rec = record(Kind::Write, &p); bytes += rec.len(); v.push(rec);
        }
        segs.push(v);
    }
    let all = write_unit(&dir, FIRST, &segs); drop(segs);
    let t = Instant::now(); Recording::open(&dir).unwrap(); eprintln!("open raw {:?} for {} MB", t.elapsed(), all.len()>>20);
    let t = Instant::now(); f.seal(|_| true, &meta()).unwrap(); eprintln!("seal {:?}", t.elapsed());
    eprintln!("log {} MB", std::fs::metadata(dir.join("units").join(FIRST.log())).unwrap().len()>>20);
    let t = Instant::now(); let rec = Recording::open(&dir).unwrap(); eprintln!("open {:?}", t.elapsed());
    let t = Instant::now(); let l = rec.log(&FIRST).unwrap(); eprintln!("log {:?} {} records", t.elapsed(), l.count());
    let t = Instant::now(); let c = l.records().filter(|(_, r)| r.kind == Kind::Call).count(); eprintln!("iterate {:?} {c}", t.elapsed());
    std::fs::remove_dir_all(&dir).unwrap();
}
