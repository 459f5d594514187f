//! G.711 μ-law and A-law (ITU-T G.711).
