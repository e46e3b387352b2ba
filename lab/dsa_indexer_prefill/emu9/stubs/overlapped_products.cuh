#pragma once
#include "async_copy.cuh"
extern float e4m3[256];
inline const uint8_t* operand(uint64_t d,int row,int k){ // K-major, 128-byte swizzle
  uint32_t start=(d&0x3fff)<<4, sbo=((d>>32)&0x3fff)<<4; if((d>>62)!=1) die("layout"); if(((d>>16)&0x3fff)!=1) die("lbo");
  uint32_t a=start+(row/8)*sbo+(row%8)*128+k; a^=((a>>7)&7)<<4; return smem_base+(a-1024);}
inline void multiply_codes(float (&c)[64],uint64_t a,uint64_t b,bool adds){
  int l=current%32,w=current/32%4;
  float A[2][32]; for(int r=0;r<2;r++)for(int k=0;k<32;k++)A[r][k]=e4m3[*operand(a,16*w+l/4+8*r,k)];
  for(int j=0;j<16;j++)for(int e=0;e<2;e++){int col=8*j+2*(l%4)+e; float s0=0,s1=0; for(int k=0;k<32;k++){float bb=e4m3[*operand(b,col,k)]; s0+=A[0][k]*bb; s1+=A[1][k]*bb;}
    float&x=c[4*j+e]; float&y=c[4*j+2+e]; x=(adds?x:0)+s0; y=(adds?y:0)+s1;}
}
inline void close_group(){}
template<int N> inline void await_sums(float (&)[64]){__ballot_sync(~0u,true);}
